/// The relation of a response to the lent part of its body.
enum BodyPlacement {
    /// The response has a body of its own.
    case own
    /// Its body continues the part.
    case placed
    case misplaced
}
