import EarshotHTTP
import Testing

/// Names of methods.
@Suite struct HTTPMethodTests {
    @Test func `a method is a token`() {
        #expect(HTTPMethod("GET") == .get)
        #expect(HTTPMethod("VERSION-CONTROL")?.description == "VERSION-CONTROL")
        for text in ["", "G ET", "GET\n", "GÉT", String(repeating: "A", count: 33)] {
            #expect(HTTPMethod(text) == nil)
        }
    }
}
