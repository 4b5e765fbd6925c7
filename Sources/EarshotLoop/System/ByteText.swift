/// Text for bytes that need not be UTF-8: arguments, paths, environment variables.
///
/// Each byte outside a valid UTF-8 sequence becomes one private-use scalar, U+10FE80 to U+10FEFF, so that the same
/// bytes go back to the system. Such scalars in the input are treated as invalid bytes, which makes the mapping
/// reversible.
public enum ByteText {
    private static let scalarBase: UInt32 = 0x10FE00
    private static let byteScalars: ClosedRange<UInt32> = 0x10FE80...0x10FEFF
    /// First UTF-8 byte of each such scalar; nearly absent from ordinary text.
    private static let firstUTF8Byte: UInt8 = 0xF4

    /// Returns the text that represents `bytes`. O(bytes).
    public static func text(of bytes: [UInt8]) -> String {
        if let text = String(validating: bytes, as: UTF8.self), !containsNonUTF8Bytes(text) { return text }
        var text = String.UnicodeScalarView()
        var rest = bytes[...]
        while let byte = rest.first {
            let length = byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4
            let character = String(validating: rest.prefix(length), as: UTF8.self)?.unicodeScalars
            if let character, character.count == 1, let scalar = character.first, self.byte(of: scalar) == nil {
                text.append(scalar)
                rest.removeFirst(length)
            } else {
                rest.removeFirst()
                if let mark = Unicode.Scalar(scalarBase + UInt32(byte)) { text.append(mark) }
            }
        }
        return String(text)
    }

    /// Returns the text that represents a C string.
    public static func text(cString: UnsafePointer<CChar>) -> String {
        var bytes: [UInt8] = []
        var next = unsafe cString
        while unsafe next.pointee != 0 {
            unsafe bytes.append(UInt8(bitPattern: next.pointee))
            unsafe next = next.advanced(by: 1)
        }
        return text(of: bytes)
    }

    /// Returns the bytes that `text` represents. O(text).
    public static func bytes(of text: String) -> [UInt8] {
        guard containsNonUTF8Bytes(text) else { return Array(text.utf8) }
        return text.unicodeScalars.flatMap { scalar in
            byte(of: scalar).map { [$0] } ?? Array(String(scalar).utf8)
        }
    }

    /// Returns the same bytes as a C string. A system call reads them up to the first zero.
    public static func cString(_ text: String) -> [CChar] {
        guard !containsNonUTF8Bytes(text) else { return bytes(of: text).map { CChar(bitPattern: $0) } + [0] }
        let utf8 = text.utf8
        let bytes = utf8.span
        var path: [CChar] = []
        // An initializer of the array would look up generic metadata.
        path.append(addingCapacity: bytes.count + 1) { output in
            for index in bytes.indices { output.append(CChar(bitPattern: bytes[index])) }
            output.append(0)
        }
        return path
    }

    /// Returns whether the text represents bytes that are not UTF-8.
    public static func containsNonUTF8Bytes(_ text: String) -> Bool {
        // By pointer and without a branch for each byte, so that the compiler compares many at once.
        let isSuspect = unsafe text.utf8.withContiguousStorageIfAvailable { utf8 in
            unsafe utf8.reduce(0 as UInt8) { $0 | ($1 == firstUTF8Byte ? 1 : 0) } != 0
        }
        return isSuspect != false && text.unicodeScalars.contains { byte(of: $0) != nil }
    }

    /// Returns the byte that a scalar represents; nil for an ordinary scalar.
    public static func byte(of scalar: Unicode.Scalar) -> UInt8? {
        byteScalars.contains(scalar.value) ? UInt8(scalar.value - scalarBase) : nil
    }
}
