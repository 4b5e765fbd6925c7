import Curl
import Testing

@Suite struct StreamEndTests {
    @Test func `the ends of HTTP/2 streams are seen with this libcurl`() throws {
        _ = try Multi.make(maxConnections: 1)
        #expect(Multi.speaksHTTP2)
    }
}
