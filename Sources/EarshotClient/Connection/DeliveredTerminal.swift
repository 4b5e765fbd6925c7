package import EarshotWire

/// Terminal of a request as delivered to its consumer.
///
/// If the body is a file (`terminal.response?.bodyFilePath`), its path is valid until the delivery is finished. Call
/// ``ClientConnection/finishDelivery(_:)`` after reading it, or ``ClientConnection/resubmitRequest(of:)`` if it cannot
/// be opened. A delivery without a file needs no call, unless the connection was created with `consumerFinishesDeliveries`. Finishing
/// a durable terminal (`terminal.isDurable`) deletes its result from the broker's disk.
package struct DeliveredTerminal: Equatable, Sendable {
    /// Identity of a delivery: number of its session, and its sequence number there.
    package struct ID: Hashable, Sendable {
        let sessionNumber: UInt64
        let sequence: UInt64
    }

    /// Identity of the delivery.
    package let id: ID
    private let sharedTerminal: Shared<Terminal>
    private let request: Shared<Fetch>?
    /// Number of earlier deliveries of this request whose file was missing.
    let missingFileCount: Int
    /// File of a body that the broker has sent. Its path is valid while a copy of this value exists.
    private let receivedFile: ReceivedFile?
    /// Reason why such a body could not be stored: the `errno` value; nil for a stored one. The consumer must finish
    /// the delivery.
    package let storeFailure: Int32?
    /// Whether the consumer owns the file, and may change or move it before it finishes the delivery.
    package let ownsFile: Bool

    init(id: ID, _ terminal: consuming Terminal, of request: OpenRequest?) {
        self.id = id
        sharedTerminal = Shared(terminal)
        self.request = request?.fetch
        missingFileCount = request?.missingFileCount ?? 0
        receivedFile = nil
        storeFailure = nil
        ownsFile = false
    }

    private init(
        _ delivery: DeliveredTerminal, _ file: String, of received: ReceivedFile?, _ storeFailure: Int32?, isOwn: Bool
    ) {
        id = delivery.id
        sharedTerminal = Shared(delivery.terminal.withFile(file))
        request = delivery.request
        missingFileCount = delivery.missingFileCount
        receivedFile = received
        self.storeFailure = storeFailure
        ownsFile = isOwn
    }

    /// Returns the delivery with the body that the broker has sent.
    func withReceivedFile(_ file: ReceivedFile, storeFailure: Int32?) -> DeliveredTerminal {
        DeliveredTerminal(self, file.path, of: file, storeFailure, isOwn: true)
    }

    /// Returns the delivery with a file whose ownership the broker has transferred.
    func withOwnedFile(_ file: String) -> DeliveredTerminal { DeliveredTerminal(self, file, of: nil, nil, isOwn: true) }

    /// Whether the body cannot be read any more, because its session has ended.
    package var isBodyLost: Bool { terminal.response?.bodyFilePath == BodyFile.missingFilePath }

    /// Returns the delivery with a missing file in place of a body that cannot be read.
    func withMissingFile() -> DeliveredTerminal {
        DeliveredTerminal(self, BodyFile.missingFilePath, of: nil, nil, isOwn: false)
    }

    /// The terminal.
    package var terminal: Terminal { sharedTerminal.value }

    /// The request; nil for a request of another client.
    package var fetch: Fetch? { request?.value }

    /// Handler and ID of the request.
    package var key: RequestKey { RequestKey(sharedTerminal.value.handler, sharedTerminal.value.request) }

    /// Whether the body is a file, so that the consumer must finish the delivery.
    package var isFile: Bool { terminal.response?.bodyFilePath != nil }
}

extension Terminal {
    /// Returns the terminal with another file.
    fileprivate func withFile(_ file: String) -> Terminal {
        var terminal = self
        switch outcome {
        case .result(let status, var response):
            (response.bodyFilePath, response.isPulled) = (file, false)
            terminal.outcome = .result(status: status, response)
        case .failed(var failure):
            failure.errorPageResponse?.bodyFilePath = file
            failure.errorPageResponse?.isPulled = false
            terminal.outcome = .failed(failure)
        }
        return terminal
    }
}
