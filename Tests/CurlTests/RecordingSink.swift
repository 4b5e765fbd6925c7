import Curl

/// Keeps what arrives, and refuses when told.
final class RecordingSink: TransferSink {
    private(set) var head = ""
    private(set) var body: [UInt8] = []
    /// The body bytes after which it refuses more.
    var bodyLimit = Int.max
    var refusesHeader = false
    /// Whether it takes no bytes for now.
    var isPostponing = false
    /// How often it took none.
    private(set) var postponed = 0
    /// The addresses that it does not admit.
    var refusedAddresses: Set<String> = []
    /// The addresses it was asked about, in order.
    private(set) var askedAddresses: [String] = []

    var text: String { String(decoding: body, as: UTF8.self) }

    func admits(address: String) -> Bool {
        askedAddresses.append(address)
        return !refusedAddresses.contains(address)
    }

    func received(headerLine: Span<UInt8>) -> Bool {
        unsafe headerLine.withUnsafeBufferPointer { unsafe head += String(decoding: $0, as: UTF8.self) }
        return !refusesHeader
    }

    func received(body bytes: Span<UInt8>) -> Reception {
        guard !isPostponing else {
            postponed += 1
            return .postponed
        }
        unsafe bytes.withUnsafeBufferPointer { unsafe body += $0 }
        return body.count <= bodyLimit ? .taken : .refused
    }
}
