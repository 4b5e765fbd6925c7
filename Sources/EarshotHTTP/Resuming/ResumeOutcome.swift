/// What follows from the answer to a request for the rest of a body.
public enum ResumeOutcome: Hashable, Sendable {
    /// The body goes on at offset `from`, which is where what is kept ends, and ends before `to`. If `total` is known
    /// and larger, the rest has to be asked for once more.
    case append(from: Int64, to: Int64, total: Int64?)
    /// The body is a whole one, from its first byte: drop what is kept.
    case startOver
    /// What is kept is all of it, and the answer's body is none of it.
    case alreadyWhole
    /// The body belongs to something else, or cannot be placed: drop it and what is kept, and ask for the whole.
    case mismatch
    /// The answer is about something else, a redirect or an error: judge it as if nothing were kept. What is kept is
    /// as good as before.
    case unrelated
}
