import Testing

@testable import EarshotWire

/// The table of FETCH options and its visitors.
@Suite struct FetchFieldTests {
    @Test func `each field has a name of its own and each default is read as itself`() throws {
        let fields = Fetch.Options.fieldRows
        #expect(Set(fields.map(\.name)).count == fields.count && fields.count > 20)
        for field in fields where !field.defaultText.isEmpty {
            var options = Fetch.Options()
            try options.setOption(field.name, to: field.defaultText)
            #expect(options == Fetch.Options(), "\(field.name)")
        }
    }

    @Test func `each word is read, and written unless it is the default`() throws {
        for field in Fetch.Options.fieldRows {
            for word in field.allowedWords {
                var options = Fetch.Options()
                try options.setOption(field.name, to: word)
                var writer = HeadWriter("")
                options.write(to: &writer)
                #expect(
                    String(decoding: writer.bytes, as: UTF8.self)
                        == (word == field.defaultText ? "" : "\n\(field.name): \(word)"))
            }
            guard !field.allowedWords.isEmpty else { continue }
            var options = Fetch.Options()
            #expect(throws: WireError.self) { try options.setOption(field.name, to: "other") }
        }
    }

    @Test func `an unknown field changes nothing`() throws {
        var options = Fetch.Options()
        try options.setOption("novel", to: "1")
        #expect(options == Fetch.Options() && options.hasDefaultContent && options.totalTextBytes == 3)
    }

    @Test func `the bytes of all texts are counted`() throws {
        var options = Fetch.Options()
        let digest = String(repeating: "0a", count: 32)
        let lines = [("method", "HEAD"), ("digest", "sha-256=" + digest), ("proxy", "none")]
        for (name, text) in lines { try options.setOption(name, to: text) }
        // The route counts with the names of its fields: "\nproxy: none\n".
        #expect(options.totalTextBytes == 81)
    }
}
