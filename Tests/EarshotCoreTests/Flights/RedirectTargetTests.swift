import EarshotHTTP
import Testing

@testable import EarshotCore

/// Descriptions of malformed targets of redirects.
@Suite struct RedirectTargetTests {
    @Test(
        arguments: [
            (
                "http://h/" + String(repeating: "a", count: 9_000), .tooLong,
                "http://h/" + String(repeating: "a", count: 71) + "...: The URL is longer than 8192 bytes."
            ),
            ("http://me:secret@h:0/?token#part", .invalidPort, "h:0/: The port is not a number from 1 to 65535."),
            ("http://h\\a", .backslash, "http://h\\a: The URL holds a backslash"),
            ("/\u{7}é", .controlCharacter, "/???: The URL holds a control character."),
        ] as [(String, FetchURL.ParseError, String)])
    func `a malformed target is described by its start and its fault, without its secrets`(
        target: String, error: FetchURL.ParseError, description: String
    ) {
        #expect(Flights.redirectErrorText(error, ofTarget: target) == "The server redirects to " + description)
    }
}
