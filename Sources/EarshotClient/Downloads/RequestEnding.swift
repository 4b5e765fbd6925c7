/// Ending of a request.
enum RequestEnding: Sendable {
    case response(Response)
    case failed(BusError)
    /// The program cancelled the request. Closures are not called.
    case cancelled

    /// The response, or the error to throw.
    var result: Result<Response, any Error> {
        switch self {
        case .response(let response): .success(response)
        case .failed(let error): .failure(error)
        case .cancelled: .failure(CancellationError())
        }
    }
}
