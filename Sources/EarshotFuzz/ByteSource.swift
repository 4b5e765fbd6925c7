/// Choices that the bytes of an input make, for targets that drive a state machine.
struct ByteSource {
    private var rest: ArraySlice<UInt8>

    init(_ bytes: [UInt8]) { rest = bytes[...] }

    /// Whether all bytes are used. Choices are then 0.
    var isEmpty: Bool { rest.isEmpty }

    mutating func byte() -> UInt8 { rest.popFirst() ?? 0 }

    /// Returns a number less than `limit`, which is at most 256.
    mutating func number(_ limit: Int) -> Int { Int(byte()) % limit }

    mutating func flag() -> Bool { byte() & 1 == 1 }

    mutating func element<Element>(of elements: [Element]) -> Element? {
        elements.isEmpty ? nil : elements[number(elements.count)]
    }

    /// Returns a number of bytes: near 0, near the limits of a DATA, or of any size.
    mutating func size() -> Int {
        let (form, value) = (byte(), Int(byte()))
        return switch form % 6 {
        case 0: value
        case 1: value << 10
        case 2: (256 << 10) - 128 + value
        case 3: value << 16
        case 4: .max - value
        default: 1 << (value % 63)
        }
    }

    /// Returns the other bytes.
    mutating func takeRest() -> [UInt8] {
        defer { rest = [] }
        return Array(rest)
    }
}
