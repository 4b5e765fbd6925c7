/// Some of the ASCII characters, one bit each: whether a byte is one of them takes no more than a shift.
struct ByteSet {
    /// What a path segment in normal form is made of: `isPath` without `/`, and without a backslash, which no URL has.
    static let segment = ByteSet(low: 0x2fff_7ff2_0000_0000, high: 0x57ff_fffe_afff_ffff)
    /// `isQuery`, without a backslash.
    static let query = ByteSet(low: 0xafff_fff2_0000_0000, high: 0x7fff_ffff_efff_ffff)
    /// What a label of a host in normal form is made of.
    static let host = ByteSet(low: 0x03ff_2000_0000_0000, high: 0x07ff_fffe_8000_0000)

    /// The characters below 0x40.
    let low: UInt64
    /// The others, from 0x40 on.
    let high: UInt64

    func contains(_ byte: UInt8) -> Bool {
        byte < 0x80 && (byte < 0x40 ? low : high) &>> UInt64(byte) & 1 == 1
    }
}
