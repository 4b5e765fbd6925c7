import EarshotWire
import Testing

@testable import EarshotBroker

@Suite struct FlightIdentityTests {
    @Test func `an identity is the first half of a SHA-256, in every process`() {
        // FIPS 180-2, appendix B.1, and the empty message.
        #expect(FlightIdentity(digestOf: Array("abc".utf8)).description == "ba7816bf8f01cfea414140de5dae2223")
        #expect(FlightIdentity(digestOf: []).description == "e3b0c44298fc1c149afbf4c8996fb924")
    }
}
