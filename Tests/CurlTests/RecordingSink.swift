import Curl

/// Sink that records its input, and refuses it on request.
final class RecordingSink: TransferSink {
    private(set) var head = ""
    private(set) var body: [UInt8] = []
    /// Number of body bytes after which it refuses more.
    var bodyLimit = Int.max
    var refusesHeader = false
    /// Whether it postpones bytes.
    var isPostponing = false
    /// Number of postponed calls.
    private(set) var postponed = 0
    /// Addresses that it does not admit.
    var refusedAddresses: Set<String> = []
    /// Addresses that it was asked to admit, in order.
    private(set) var requestedAddresses: [String] = []

    var text: String { String(decoding: body, as: UTF8.self) }

    func admits(address: String) -> Bool {
        requestedAddresses.append(address)
        return !refusedAddresses.contains(address)
    }

    func received(headerLine: Span<UInt8>) -> Bool {
        unsafe headerLine.withUnsafeBufferPointer { unsafe head += String(decoding: $0, as: UTF8.self) }
        return !refusesHeader
    }

    func received(body bytes: Span<UInt8>) -> Reception {
        guard !isPostponing else {
            postponed += 1
            return .paused
        }
        unsafe bytes.withUnsafeBufferPointer { unsafe body += $0 }
        return body.count <= bodyLimit ? .accepted : .refused
    }
}
