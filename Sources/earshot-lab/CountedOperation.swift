internal import ArgumentParser

/// Operation for which instructions are counted.
enum CountedOperation: String, CaseIterable, ExpressibleByArgument {
    /// Decodes the head of a client's FETCH.
    case decode
    case submit
    case join
    case assign
    case complete
    /// Encodes a RESULT.
    case encode
}
