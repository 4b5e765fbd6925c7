package import EarshotWire

/// Terminal of a request as delivered to its consumer.
///
/// If the body is a file (`terminal.response?.file`), its path is valid until the delivery is finished. Call
/// ``ClientConnection/finish(_:)`` after reading it, or ``ClientConnection/resubmit(_:)`` if it cannot be opened. A
/// delivery without a file needs no call, unless the connection was created with `finishesNone`. Finishing a durable
/// terminal (`terminal.isDurable`) deletes its result from the broker's disk.
package struct DeliveredTerminal: Equatable, Sendable {
    /// Identity of a delivery: number of its session, and its sequence number there.
    package struct ID: Hashable, Sendable {
        let link: UInt64
        let sequence: UInt64
    }

    /// Identity of the delivery.
    package let id: ID
    private let ended: Shared<Terminal>
    private let request: Shared<Fetch>?
    /// Number of earlier deliveries of this request whose file was missing.
    let losses: Int
    /// File of a body that the broker has sent. Its path is valid while a copy of this value exists.
    private let received: ReceivedFile?
    /// Reason why such a body could not be stored: the `errno` value; nil for a stored one. The consumer must finish the
    /// delivery.
    package let storeFailure: Int32?
    /// Whether the consumer owns the file, and may change or move it before it finishes the delivery.
    package let isOwn: Bool

    init(id: ID, _ terminal: consuming Terminal, of request: OpenRequest?) {
        self.id = id
        ended = Shared(terminal)
        self.request = request?.fetch
        losses = request?.losses ?? 0
        received = nil
        storeFailure = nil
        isOwn = false
    }

    private init(
        _ delivery: DeliveredTerminal, _ file: String, of received: ReceivedFile?, _ storeFailure: Int32?, isOwn: Bool
    ) {
        id = delivery.id
        ended = Shared(delivery.terminal.with(file))
        request = delivery.request
        losses = delivery.losses
        self.received = received
        self.storeFailure = storeFailure
        self.isOwn = isOwn
    }

    /// Returns the delivery with the body that the broker has sent.
    func with(_ file: ReceivedFile, _ storeFailure: Int32?) -> DeliveredTerminal {
        DeliveredTerminal(self, file.path, of: file, storeFailure, isOwn: true)
    }

    /// Returns the delivery with a file that the broker has given away.
    func owning(_ file: String) -> DeliveredTerminal { DeliveredTerminal(self, file, of: nil, nil, isOwn: true) }

    /// Whether the body cannot be read any more, because its session has ended.
    package var isLost: Bool { terminal.response?.file == BodyFile.missingFile }

    /// Returns the delivery with a missing file in place of a body that cannot be read.
    func withMissingFile() -> DeliveredTerminal {
        DeliveredTerminal(self, BodyFile.missingFile, of: nil, nil, isOwn: false)
    }

    /// The terminal.
    package var terminal: Terminal { ended.value }

    /// The request; nil for a request of another client.
    package var fetch: Fetch? { request?.value }

    /// Handler and ID of the request.
    package var key: RequestKey { RequestKey(ended.value.handler, ended.value.request) }

    /// Whether the body is a file, so that the consumer must finish the delivery.
    package var isFile: Bool { terminal.response?.file != nil }
}

extension Terminal {
    /// Returns the terminal with another file.
    fileprivate func with(_ file: String) -> Terminal {
        var terminal = self
        switch outcome {
        case .result(let status, var response):
            (response.file, response.isPulled) = (file, false)
            terminal.outcome = .result(status: status, response)
        case .failed(var failure):
            failure.response?.file = file
            failure.response?.isPulled = false
            terminal.outcome = .failed(failure)
        }
        return terminal
    }
}
