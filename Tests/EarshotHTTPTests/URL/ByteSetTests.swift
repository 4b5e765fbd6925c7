import EarshotWire
import Testing

@testable import EarshotHTTP

/// The bit masks agree with the predicates of a byte.
struct ByteSetTests {
    @Test func `each set is the bytes that its description names`() {
        for byte in UInt8.min...UInt8.max {
            let isBackslash = byte == UInt8(ascii: "\\")
            let isLabel = byte.isLowercase || byte.isDigit || byte == UInt8(ascii: "-") || byte == UInt8(ascii: "_")
            let isSegment = byte.isPathByte && byte != UInt8(ascii: "/") && !isBackslash
            #expect(ByteSet.pathSegment.contains(byte) == isSegment, "\(byte)")
            #expect(ByteSet.query.contains(byte) == (byte.isQueryByte && !isBackslash), "\(byte)")
            #expect(ByteSet.host.contains(byte) == isLabel, "\(byte)")
        }
    }
}
