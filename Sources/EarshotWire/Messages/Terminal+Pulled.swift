/// Terminals whose body has another form than a path.
extension Terminal {
    /// Whether the body is delivered in a file.
    public var hasFile: Bool { response.map { $0.file != nil && !$0.isInline } ?? false }

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

    /// Returns the terminal without its file, for a body in the second frame or in a database.
    public func withoutFile() -> Terminal {
        func withoutFile(_ response: Response) -> Response {
            var response = response
            (response.file, response.isInline, response.isPulled, response.generation) = (nil, false, false, nil)
            return response
        }
        var terminal = self
        switch outcome {
        case .result(let status, let response): terminal.outcome = .result(status: status, withoutFile(response))
        case .failed(var failure):
            failure.response = failure.response.map(withoutFile)
            terminal.outcome = .failed(failure)
        }
        return terminal
    }
}
