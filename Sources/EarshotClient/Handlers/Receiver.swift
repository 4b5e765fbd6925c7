/// Destination of a request's ending. The loop owns it and completes it once.
enum Receiver: Sendable {
    /// A waiting task.
    case task(CheckedContinuation<Response, any Error>)
    /// A closure, which checks on its own actor whether the request is still valid.
    case function(@Sendable (Result<Response, BusError>) async -> Void)
    /// A download with any number of readers.
    case download(Observed<DownloadState>)

    func complete(with ending: RequestEnding) {
        switch self {
        case .task(let continuation): continuation.resume(with: ending.result)
        case .download(let state): state.change { $0.recordEnding(ending) }
        case .function(let deliver):
            switch ending {
            case .response(let response): Task { await deliver(.success(response)) }
            case .failed(let error): Task { await deliver(.failure(error)) }
            case .cancelled: break
            }
        }
    }
}

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
