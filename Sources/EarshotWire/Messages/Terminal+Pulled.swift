/// Terminals of sessions with pulled bodies.
extension Terminal {
    /// Whether the body is in a file.
    public var hasFile: Bool { response?.file != nil }

    /// Returns the terminal with a body that the receiver reads with READ. The file stays in the value for the sender,
    /// and the head does not name it.
    public func pulled() -> Terminal {
        var terminal = self
        switch outcome {
        case .result(let status, var response):
            response.isPulled = true
            terminal.outcome = .result(status: status, response)
        case .failed(var failure):
            failure.response?.isPulled = true
            terminal.outcome = .failed(failure)
        }
        return terminal
    }
}
