import Curl

/// Keeps what arrives, and refuses when told.
final class RecordingSink: TransferSink {
    private(set) var head = ""
    private(set) var body: [UInt8] = []
    /// The body bytes after which it refuses more.
    var bodyLimit = Int.max
    var refusesHeader = false

    var text: String { String(decoding: body, as: UTF8.self) }

    func received(headerLine: Span<UInt8>) -> Bool {
        unsafe headerLine.withUnsafeBufferPointer { unsafe head += String(decoding: $0, as: UTF8.self) }
        return !refusesHeader
    }

    func received(body bytes: Span<UInt8>) -> Bool {
        unsafe bytes.withUnsafeBufferPointer { unsafe body += $0 }
        return body.count <= bodyLimit
    }
}
