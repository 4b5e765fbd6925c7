/// The relation of an answer to the bytes of the body that earlier attempts brought.
enum BodyPlacement {
    /// It has a body of its own.
    case own
    /// Its body continues those bytes.
    case placed
    case misplaced
}
