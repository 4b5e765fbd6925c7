internal import EarshotWire

/// Request ID in 16 bytes, for very numerous records. An ID of at most 16 bytes is stored as it is. A longer one is
/// stored as 127 bits of a hash with a key of this process. Marks are equal only for equal IDs, unless two long IDs
/// collide, which is as improbable as for 128-bit digests (`FlightIdentity`).
struct RequestMark: Equatable {
    /// Set in marks of long IDs. It is clear in all others, because the bytes of an ID are visible ASCII.
    private static let isHashed: UInt64 = 1 << 63

    private let high: UInt64
    private let low: UInt64

    init(_ request: RequestID) {
        let bytes = request.description.utf8
        guard bytes.count > 16 else {
            high = bytes.prefix(8).reduce(0) { $0 << 8 | UInt64($1) }
            low = bytes.dropFirst(8).reduce(0) { $0 << 8 | UInt64($1) }
            return
        }
        func hash(_ round: UInt8) -> UInt64 {
            var hasher = Hasher()
            hasher.combine(round)
            hasher.combine(request)
            return UInt64(bitPattern: Int64(hasher.finalize()))
        }
        high = hash(1) | Self.isHashed
        low = hash(2)
    }

    /// The ID, if it has at most 16 bytes.
    var request: RequestID? {
        guard high & Self.isHashed == 0 else { return nil }
        let bytes = [high, low].flatMap { word in (0..<8).map { UInt8(truncatingIfNeeded: word >> (56 - 8 * $0)) } }
        return RequestID(String(decoding: bytes.filter { $0 > 0 }, as: UTF8.self))
    }
}
