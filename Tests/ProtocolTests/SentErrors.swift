import Foundation

/// Codes of ERROR in the sources: the literals at the calls that send them.
enum SentErrors {
    private static var patterns: [Regex<(Substring, Substring)>] {
        [
            /refuseMessage\(\s*of: client, code: "([a-z-]+)"/,
            /refuseReady\(\s*of: worker, "([a-z-]+)"/,
            /\.error\(\s*code: "([a-z-]+)"/,
            /disconnectForViolation\(\s*worker, "([a-z-]+)"/,
            /ErrorReply\(\s*code: "([a-z-]+)"/,
            /= Code\(rawValue: "([a-z-]+)"\)/,
        ]
    }

    static func all() throws -> Set<String> {
        var codes: Set<String> = []
        for target in ["EarshotWire", "EarshotCore", "EarshotBroker"] {
            for path in try DocumentFolder.swiftFiles(below: "Sources/\(target)") {
                let text = try DocumentFolder.text(path)
                for pattern in patterns { codes.formUnion(text.matches(of: pattern).map { String($0.1) }) }
            }
        }
        return codes
    }
}
