/// Key of a terminal.
enum TopKey: Equatable {
    case character(Character)
    case up
    case down
    case enter
    case erase
    case escape

    /// Decodes the bytes of one read. Unknown sequences are dropped.
    static func keys(in bytes: [UInt8]) -> [TopKey] {
        var keys: [TopKey] = []
        var rest = bytes[...]
        while let byte = rest.popFirst() {
            switch byte {
            case 0x0a, 0x0d: keys.append(.enter)
            case 0x08, 0x7f: keys.append(.erase)
            case 0x1b:
                guard let introducer = rest.first, introducer == UInt8(ascii: "[") || introducer == UInt8(ascii: "O")
                else {
                    keys.append(.escape)
                    continue
                }
                rest = rest.dropFirst()
                // Parameters end with the first byte of 40 to 7E (ECMA-48).
                rest = rest.drop { !(0x40...0x7e).contains($0) }
                switch rest.popFirst() {
                case UInt8(ascii: "A"): keys.append(.up)
                case UInt8(ascii: "B"): keys.append(.down)
                default: break
                }
            case 0x20..<0x7f: keys.append(.character(Character(Unicode.Scalar(byte))))
            default: break
            }
        }
        return keys
    }
}
