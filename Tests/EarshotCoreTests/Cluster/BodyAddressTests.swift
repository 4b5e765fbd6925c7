import Testing

@testable import EarshotCore

/// The place of a body: its text and its URL, and texts that are none.
@Suite struct BodyAddressTests {
    private static let key = "000000000000000a00000000000000ff"

    @Test(arguments: ["10.0.0.1:5766", "[2001:db8::1]:65535", "0:0"])
    func `a place is written and read again`(address: String) {
        let body = HeldBody(key: ClusterKey(high: 10, low: 255), token: FencingToken(7))
        let place = BodyAddress(address: address, body: body)
        #expect(place.description == "\(address)/\(Self.key)/7")
        #expect(BodyAddress(place.description) == place)
        #expect(place.url == "earshot-node://\(address)/\(Self.key)/7")
        #expect(BodyAddress(url: place.url) == place)
    }

    @Test(arguments: [
        "", "/", "//", "10.0.0.1:5766", "10.0.0.1:5766/\(key)", "10.0.0.1:5766/\(key)/7/", "/\(key)/7",
        "10.0.0.1:5766/\(key)/0", "10.0.0.1:5766/\(key)/-1", "10.0.0.1:5766/\(key)/x", "10.0.0.1:5766/\(key)/",
        "10.0.0.1:5766/\(key)/18446744073709551616", "10.0.0.1:5766/\(key.dropLast())/7",
        "10.0.0.1:5766/\(key.uppercased())/7", "example.com:80/\(key)/7", "10.0.0.1:5766 /\(key)/7",
        "10.0.0.1:57\u{e9}66/\(key)/7", "user@10.0.0.1:1/\(key)/7",
        String(repeating: "1", count: 65) + "/\(key)/7",
    ])
    func `any other text is no place`(text: String) {
        #expect(BodyAddress(text) == nil)
        #expect(BodyAddress(url: "earshot-node://\(text)") == nil)
    }

    @Test(arguments: [
        "http://10.0.0.1:1/\(key)/7", "earshot-node:10.0.0.1:1/\(key)/7", "", "EARSHOT-NODE://1:1/\(key)/7",
    ])
    func `a URL of another form names no body`(url: String) { #expect(BodyAddress(url: url) == nil) }
}
