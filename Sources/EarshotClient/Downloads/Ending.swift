/// How a request ended, as its receiver is told.
enum Ending: Sendable {
    case response(Response)
    case failed(BusError)
    /// By its own program: a receiver that does not wait for it hears nothing.
    case cancelled

    /// As values and errors.
    var result: Result<Response, any Error> {
        switch self {
        case .response(let response): .success(response)
        case .failed(let error): .failure(error)
        case .cancelled: .failure(CancellationError())
        }
    }
}
