import Testing

@testable import earshot

/// Options with one value that are given twice.
@Suite struct RepeatedOptionTests {
    private func repeated(_ words: String) throws -> String? {
        let words = words.split(separator: " ").map(String.init)
        guard RepeatedOption.mayOccur(in: words[...]) else { return nil }
        return try #require(CommandShape.program).firstRepeated(in: words[...])?.name
    }

    @Test(arguments: [
        ("get -o a -o b u", "-o"), ("get -i x --input=y", "--input"), ("get --output a -o b u", "-o"),
        ("submit -d a u -d b", "-d"), ("key new --out a -o b", "-o"), ("get --proxy a --proxy b u", "--proxy"),
    ])
    func `an option with one value is not given twice`(words: String, name: String) throws {
        #expect(try repeated(words) == name)
    }

    @Test(arguments: [
        "get -o a u", "get -H a:b -H c:d u", "retry h --code a --code b", "get -q -q u",
        "work --scheme a --scheme b -- p -o -o",
        "get --data -o -o a u", "get u -- -o -o", "list", "serve --origin a --origin b", "serve --spool a --spool b",
        "get --bus a --bus b -o c u",
    ])
    func `other arguments may repeat`(words: String) throws {
        #expect(try repeated(words) == nil)
    }

    @Test func `each short name of an option with a value has its long name`() throws {
        func check(_ shape: CommandShape) {
            for (name, takesValue) in shape.options where takesValue && name.count == 2 {
                let long = RepeatedOption.longNames[name] ?? ""
                // `-o` of some commands is `--out`.
                #expect(shape.options[long] == true || name == "-o", "\(name)")
            }
            for (_, inner) in shape.subcommands { check(inner) }
        }
        check(try #require(CommandShape.program))
    }
}
