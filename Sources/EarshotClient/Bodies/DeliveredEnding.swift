internal import EarshotWire

/// Terminal with its body. The file is open, so the terminal can be acknowledged.
enum DeliveredEnding {
    case response(Response)
    case failed(BusError)
    /// The body's file is missing. The request can be repeated.
    case isGone

    init(_ delivery: DeliveredTerminal, _ bytes: [UInt8]) {
        if let number = delivery.storeFailure {
            self = .failed(.cannotStore(number))
            return
        }
        do throws(DeliveredFile.Failure) {
            switch delivery.terminal.outcome {
            case .result(let status, let response):
                self = .response(Response(status: status, response, body: try Self.body(response, bytes)))
            case .failed(let failure):
                guard let response = failure.response else {
                    self = .failed(BusError(failure, page: nil))
                    return
                }
                let page = Response(
                    status: failure.status ?? 0, response, body: try Self.body(response, bytes))
                self = .failed(BusError(failure, page: page))
            }
        } catch {
            switch error {
            case .isGone: self = .isGone
            case .cannotOpen(let number): self = .failed(.cannotOpen(number))
            }
        }
    }

    private static func body(
        _ response: Terminal.Response, _ bytes: [UInt8]
    ) throws(DeliveredFile.Failure) -> ResponseBody {
        guard let path = response.file else { return ResponseBody(bytes) }
        return ResponseBody(
            try DeliveredFile(path, length: response.length), length: response.length, response.generation)
    }
}
