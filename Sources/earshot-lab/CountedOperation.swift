internal import ArgumentParser

/// What instructions are counted of.
enum CountedOperation: String, CaseIterable, ExpressibleByArgument {
    /// A head of a client's FETCH becomes a message.
    case decode
    case submit
    case join
    case assign
    case complete
    /// A RESULT becomes a head.
    case encode
}
