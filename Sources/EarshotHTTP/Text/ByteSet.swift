/// Set of ASCII characters as a bit mask, for a membership test by one shift.
struct ByteSet {
    /// Bytes of a normalized path segment: `isPath` without `/` and backslash.
    static let segment = ByteSet(low: 0x2fff_7ff2_0000_0000, high: 0x57ff_fffe_afff_ffff)
    /// Bytes of a normalized query: `isQuery` without backslash.
    static let query = ByteSet(low: 0xafff_fff2_0000_0000, high: 0x7fff_ffff_efff_ffff)
    /// Bytes of a normalized label of a host.
    static let host = ByteSet(low: 0x03ff_2000_0000_0000, high: 0x07ff_fffe_8000_0000)

    /// Characters below 0x40.
    let low: UInt64
    /// Characters from 0x40 on.
    let high: UInt64

    func contains(_ byte: UInt8) -> Bool {
        byte < 0x80 && (byte < 0x40 ? low : high) &>> UInt64(byte) & 1 == 1
    }
}
