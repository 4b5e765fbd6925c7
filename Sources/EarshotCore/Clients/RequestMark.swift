internal import EarshotWire

/// A request ID in 16 bytes, for records that are very many: one of 16 bytes or fewer is in it as it is, of a longer
/// one 127 bits of a hash under a key of this process. So two of them are the same only for the same ID; that nobody
/// finds two long ones for which it is not so is what is trusted of 128 bits elsewhere, too (`FlightIdentity`).
struct RequestMark: Equatable {
    /// Set in marks of long IDs: the bytes of an ID are visible ASCII, so in the others it is not.
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

    /// The ID, if it is short enough to be in it.
    var request: RequestID? {
        guard high & Self.isHashed == 0 else { return nil }
        let bytes = [high, low].flatMap { word in (0..<8).map { UInt8(truncatingIfNeeded: word >> (56 - 8 * $0)) } }
        return RequestID(String(decoding: bytes.filter { $0 > 0 }, as: UTF8.self))
    }
}
