/// What an answer without a body means for one that is kept.
public enum Freshening: Equatable, Sendable {
    /// Keep this in its place; the body stays.
    case update(StoredResponse)
    /// Answer with this, its body being the one that is kept, and then remove it: it may be kept no longer.
    case useOnce(StoredResponse)
    /// It is about another representation. After a 304: remove what is kept and ask without conditions. After a HEAD:
    /// validate what is kept before it is used again.
    case mismatch
    /// It says nothing about what is kept.
    case unrelated
}
