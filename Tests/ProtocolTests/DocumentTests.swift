import EarshotCore
import EarshotHTTP
import Testing

@testable import EarshotWire

/// Agreement of the documents of `protocols/`, the README's table, that of settings, the vectors and the code.
struct DocumentTests {
    @Test func `every verb of the grammar has a good vector and the other way round`() throws {
        let vectors = try Vector.accepted("good")
        for place in Document.places {
            let grammar = try Document(place.files).verbs(place.direction)
            #expect(grammar == Set(vectors.filter { $0.side == place.side }.map(\.verb)), "\(place.direction)")
        }
    }

    @Test func `every verb of the grammar has a section and the other way round`() throws {
        for place in Document.places {
            let document = try Document(place.files)
            #expect(document.verbs(place.direction) == Set(document.commands(place.direction).keys))
        }
    }

    @Test func `every field of a section is in a good vector and the other way round`() throws {
        let vectors = try Vector.accepted("good")
        for place in Document.places {
            for (verb, fields) in try Document(place.files).commands(place.direction) {
                let used = vectors.filter { $0.side == place.side && $0.verb == verb }.map(\.fields)
                #expect(used.reduce(into: Set()) { $0.formUnion($1) } == Set(fields), "\(verb), \(place.direction)")
            }
        }
    }

    @Test func `the fields of a good vector are in the order of the table`() throws {
        let vectors = try Vector.accepted("good")
        for place in Document.places {
            for (verb, fields) in try Document(place.files).commands(place.direction) {
                for vector in vectors where vector.side == place.side && vector.verb == verb {
                    let written = vector.fieldsInOrder
                    #expect(written == fields.filter { written.contains($0) }, "\(vector.testDescription)")
                }
            }
        }
    }

    @Test func `the fields that are always written are in each good vector`() throws {
        let vectors = try Vector.accepted("good")
        let rows = try Document("README.md").triples("## The vectors")
        #expect(rows.count == 10)
        for row in rows {
            let matching = vectors.filter { $0.side == row.side && $0.verb == row.verb }
            #expect(!matching.isEmpty && !row.fields.isEmpty, "\(row.side) \(row.verb)")
            for vector in matching {
                #expect(vector.fields.isSuperset(of: row.fields), "\(vector.testDescription)")
            }
        }
    }

    @Test func `the fields marked as always present are the ones that are always written`() throws {
        let rows = try Document("README.md").triples("## The vectors").filter { $0.side == .broker }
        let marked = try Document(Document.client).fieldsAlwaysPresent("broker to client")
        for row in rows {
            // RESULT always has a `seq`. FAILED has one unless it is a reply, which its row says in words.
            let written = row.verb == "FAILED" ? ["attempts"] : Set(row.fields)
            #expect(marked[row.verb] == written, "\(row.verb)")
        }
        #expect(marked["ERROR"] == ["detail"])
    }

    @Test func `each example is a message and each command has one`() throws {
        for place in Document.places {
            let document = try Document(place.files)
            let isBroker = place.direction.hasPrefix("broker")
            let examples = document.examples().filter { ($0.speaker == "S") == isBroker }
            #expect(Set(examples.map(\.verb)) == document.verbs(place.direction), "\(place.direction)")
            for example in examples {
                let text = String(decoding: example.head, as: UTF8.self)
                #expect(throws: Never.self, "\(text)") {
                    let message = try place.side.decode(example.head)
                    #expect(String(decoding: message.encoded(), as: UTF8.self).hasPrefix(text.prefix { $0 != "\n" }))
                }
            }
        }
    }

    @Test func `the table of failures is the one of the code`() throws {
        let rows = try Document("8-codes.md").rows("## Failures")
        #expect(Set(rows.keys) == Set(FailureCode.allCases.map(\.rawValue)))
        for code in FailureCode.allCases where code != .httpStatus {
            #expect(rows[code.rawValue]?[1] == (code.isRetryable(status: nil) ? "yes" : "no"), "\(code)")
        }
    }

    @Test func `the table of FETCH has the options, words and defaults of the code`() throws {
        let commands = try Document(Document.client).commands("client to broker")
        let fields = Fetch.Options.fieldRows
        #expect(commands["FETCH"] == fields.map(\.name))
        let rows = try Document(Document.client).rows("### FETCH")
        for field in fields {
            let row = try #require(rows[field.name]).map { $0.replacing("`", with: "") }
            if !field.allowedWords.isEmpty {
                #expect(row[1] == field.allowedWords.joined(separator: ", "), "\(field.name)")
            }
            if !field.defaultText.isEmpty { #expect(row[2] == field.defaultText, "\(field.name)") }
        }
    }

    @Test func `the table of settings has the names, values and defaults of the code`() throws {
        let rows = try Document("configuration.md", in: "docs").rows("## Settings")
        let others = Set(["origin", "address"] + ListSettingName.allCases.map(\.rawValue))
        #expect(Set(rows.keys) == others.union(SettingName.allCases.map(\.rawValue)))
        let defaults = Settings()
        for name in SettingName.allCases {
            let row = try #require(rows[name.rawValue]).map { Self.plain($0) }
            #expect(row[1].prefix { $0 != "," } == name.possibleValuesDescription.prefix { $0 != "," }, "\(name)")
            if let value = defaults[name] { #expect(row[2] == name.valueText(value), "\(name)") }
        }
    }

    /// Returns a cell of that table in the form of `SettingName.possibleValuesDescription`.
    private static func plain(_ cell: String) -> String {
        let units: [Substring: Int] = ["Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Pi": 1 << 50]
        let bytes = cell.replacing(/([0-9]+) ([KMGP]i)B/) { match in
            "\((Int(match.1) ?? 0) * (units[match.2] ?? 0))"
        }
        return bytes.replacing(/\ s$/, with: " seconds").replacing("`, `", with: " or ").replacing("`", with: "")
    }

    @Test func `the statuses that are tried again are the ones of the code`() throws {
        let cell = try #require(try Document("8-codes.md").rows("## Failures")["http-status"]?[1])
        let reported = cell.split { !$0.isNumber }.compactMap { Int($0) }
        #expect(reported == (400...999).filter { FailureCode.httpStatus.isRetryable(status: $0) })
    }

    @Test func `the table of errors holds every code that is sent, and no other`() throws {
        let rows = try Document("8-codes.md").rows("## Errors")
        #expect(try Set(rows.keys) == SentErrors.all())
    }

    @Test func `every code of the documents is in a good vector and the other way round`() throws {
        let vectors = try Vector.accepted("good")
        let document = try Document("8-codes.md")
        let failures = Set(document.rows("## Failures").keys)
        var reported = codes(in: vectors, of: .broker, "FAILED")
        #expect(reported.remove("full-moon") != nil, "a client reads codes that it does not know")
        // Only workers send `cancelled`.
        #expect(reported == failures.subtracting(["cancelled"]))
        #expect(codes(in: vectors, of: .worker, "FAILED").contains("cancelled"))
        #expect(codes(in: vectors, of: .worker, "FAILED").isSubset(of: failures))

        for (side, name) in [(Side.broker, "EAR/1"), (.pool, "EARW/1")] {
            let errors = document.rows("## Errors").filter { [name, "both"].contains($0.value[1]) }
            #expect(codes(in: vectors, of: side, "ERROR") == Set(errors.keys), "\(name)")
        }
    }

    /// Returns the last operands of a verb's heads.
    private func codes(in vectors: [Vector], of side: Side, _ verb: String) -> Set<String> {
        Set(vectors.filter { $0.side == side && $0.verb == verb }.map(\.lastOperand))
    }

    @Test func `each bad vector's code is in the table of errors`() throws {
        let rows = try Document("8-codes.md").rows("## Errors")
        let codes = try Set((Vector.refused() + Vector.generated()).compactMap(\.code))
        #expect(codes.isSubset(of: rows.keys))
    }

    @Test func `the documented table of exit codes is the one of the program`() throws {
        let program = try ExitCodes.ofProgram()
        #expect(program.count >= 20, "the source is read")
        #expect(try ExitCodes.ofDocument() == program)
    }
}
