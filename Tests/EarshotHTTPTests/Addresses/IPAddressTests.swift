import EarshotCore
import EarshotHTTP
import Testing

/// Addresses as text and as bits.
@Suite struct IPAddressTests {
    @Test(
        "an address has one canonical text",
        arguments: [
            Case("RFC 3986 3.2.2, IPv4", "127.0.0.1", "127.0.0.1"),
            Case("RFC 3986 3.2.2, bounds of IPv4", "0.0.0.255", "0.0.0.255"),
            Case(
                "RFC 4291 2.2 (1)", "ABCD:EF01:2345:6789:ABCD:EF01:2345:6789", "abcd:ef01:2345:6789:abcd:ef01:2345:6789"
            ),
            Case("RFC 4291 2.2 (1)", "2001:DB8:0:0:8:800:200C:417A", "2001:db8::8:800:200c:417a"),
            Case("RFC 4291 2.2 (2)", "FF01::101", "ff01::101"),
            Case("RFC 4291 2.2 (2)", "::1", "::1"),
            Case("RFC 4291 2.2 (2)", "::", "::"),
            Case("RFC 4291 2.2 (2), at the end", "fe80::", "fe80::"),
            Case("RFC 4291 2.2 (3)", "0:0:0:0:0:0:13.1.68.3", "::d01:4403"),
            Case("RFC 4291 2.2 (3)", "::FFFF:129.144.52.38", "::ffff:129.144.52.38"),
            Case("RFC 4291 2.2 (3), in the middle of zeros", "64:ff9b::192.0.2.33", "64:ff9b::c000:221"),
            Case("RFC 4291 2.2 (3), after six groups", "1:2:3:4:5:6:1.2.3.4", "1:2:3:4:5:6:102:304"),
            Case("RFC 5952 4.1, leading zeros", "2001:0db8::0001", "2001:db8::1"),
            Case("RFC 5952 4.2.1, as short as can be", "2001:db8:0:0:0:0:2:1", "2001:db8::2:1"),
            Case("RFC 5952 4.2.2, one group is not shortened", "2001:db8::1:1:1:1:1", "2001:db8:0:1:1:1:1:1"),
            Case("RFC 5952 4.2.3, the longest run", "2001:0:0:1:0:0:0:1", "2001:0:0:1::1"),
            Case("RFC 5952 4.2.3, the first of two", "2001:db8:0:0:1:0:0:1", "2001:db8::1:0:0:1"),
            Case("RFC 5952 4.2.3, at the end", "1:2:3:4:5:6:0:0", "1:2:3:4:5:6::"),
            Case("RFC 5952 4.2.3, at the start", "0:0:3:4:5:6:7:8", "::3:4:5:6:7:8"),
            Case("RFC 5952 4.3, lower case", "2001:DB8::AF", "2001:db8::af"),
            Case("RFC 5952 5, mapped in hexadecimal", "::ffff:c000:0201", "::ffff:192.0.2.1"),
        ])
    func isCanonical(_ row: Case<String>) throws {
        let address = try #require(IPAddress(row.input))
        #expect(address.description == row.expected)
        #expect(IPAddress(row.expected) == address)
    }

    @Test(
        "what is no address is none",
        arguments: [
            "", ".", "1.2.3", "1.2.3.4.5", "1.2.3.", ".1.2.3", "1..2.3", "1.2.3.256", "01.2.3.4", "1.2.3.00",
            "+1.2.3.4",
            "1.2.3.4 ", "0x7f.0.0.1", "2130706433", "1.2.3.1000", ":", ":::", "::1::", "1::2::3", "1:2:3:4:5:6:7",
            "1:2:3:4:5:6:7:8:9", "1:2:3:4:5:6:7:", ":1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8::", "::1:2:3:4:5:6:7:8",
            "12345::",
            "g::", "fe80::1%eth0", "[::1]", "::1.2.3", "::1.2.3.256", "::1.2.3.4.5", "::1.2.3.4:5",
            "1:2:3:4:5:6:7:1.2.3.4",
            "::.1.2.3", "1.2.3.4::", "::ffff:01.2.3.4",
        ])
    func isNone(_ text: String) {
        #expect(IPAddress(text) == nil)
    }

    @Test func `the bits are in network order`() {
        #expect(IPv4Address("127.0.0.1")?.value == 0x7f00_0001)
        #expect(IPv6Address("2001:db8::1:2")?.highBits == 0x2001_0db8_0000_0000)
        #expect(IPv6Address("2001:db8::1:2")?.lowBits == 0x0001_0002)
    }

    @Test func `any bits survive a round trip through text`() {
        var generator = SplitMix64Generator(seed: 4291)
        for _ in 0..<20_000 {
            // Groups are often zero, so that runs of zeros are common.
            func half() -> UInt64 {
                (0..<4).reduce(0) { half, _ in
                    half << 16 | (Bool.random(using: &generator) ? 0 : generator.next() & 0xffff)
                }
            }
            let six = IPAddress.v6(IPv6Address(highBits: half(), lowBits: half()))
            #expect(IPAddress(six.description) == six)
            let four = IPAddress.v4(IPv4Address(value: UInt32(truncatingIfNeeded: generator.next())))
            #expect(IPAddress(four.description) == four)
        }
    }
}
