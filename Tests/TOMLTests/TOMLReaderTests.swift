import TOML
import Testing

/// Values and faults of texts in TOML.
@Suite struct TOMLReaderTests {
    private func table(_ text: String) throws -> TOMLTable { try TOMLReader.parse(Array(text.utf8)) }

    /// Description of a table: `key=value;` in the order of the file.
    private func shown(_ table: TOMLTable) -> String {
        table.keys.map { "\($0)=\(table[$0].map(shown) ?? "-");" }.joined()
    }

    private func shown(_ value: TOMLValue) -> String {
        switch value {
        case .string(let value): "<\(value)>"
        case .int(let value): "\(value)"
        case .double(let value): "\(value)"
        case .bool(let value): "\(value)"
        case .array(let values): "[\(values.map(shown).joined(separator: ","))]"
        case .table(let table): "{\(shown(table))}"
        }
    }

    @Test(arguments: [
        ("", ""), ("# comment [\n\t \r\n", ""), ("\u{feff}a = 1", "a=1;"), ("a=1\r\nb=2", "a=1;b=2;"),
        // Keys and tables.
        ("-_9 = 1\n\"a b\" = 2\n'' = 3", "-_9=1;a b=2;=3;"), ("a.\"b.c\" . d = 1\na.e = 2", "a={b.c={d=1;};e=2;};"),
        ("[ a . 'b' ] # comment\nc = 1\n[a]\nd = 2", "a={b={c=1;};d=2;};"),
        ("[a.b.c]\n[a]\nb.d = 1", "a={b={c={};d=1;};};"),
        ("a.b = 1\n[c.d]\n[c.e]\n[a.f]", "a={b=1;f={};};c={d={};e={};};"),
        ("'\u{e9}' = 1\n'e\u{301}' = 2", "\u{e9}=1;e\u{301}=2;"),
        ("a = { b.c = 1, d = {} , e = [{f = 2}] }", "a={b={c=1;};d={};e=[{f=2;}];};"),
        // Numbers and truth values.
        ("a = [0, -0, +12, 1_000, -9223372036854775808]", "a=[0,0,12,1000,-9223372036854775808];"),
        ("a = [0xfF, 0o17, 0b1_0]", "a=[255,15,2];"),
        ("a = [0.5, -1.25e+2, 1e3, 6_0E-0_1]", "a=[0.5,-125.0,1000.0,6.0];"),
        ("a = [inf, -inf, true, false]", "a=[inf,-inf,true,false];"),
        ("a = [ # comment\n1 # and more\n,\n[\"x\"],]", "a=[1,[<x>]];"),
        // Strings.
        (
            #"a = ["", '', "\b\t\n\f\r\"\\", "\u00e4\U0001F600", '\n']"#,
            "a=[<>,<>,<\u{8}\t\n\u{c}\r\"\\>,<\u{e4}\u{1f600}>,<\\n>];"
        ),
        ("a = \"\"\"\nx \\ \n\n  y\"\" \\u0041\"\"\"\"\"", "a=<x y\"\" A\"\">;"),
        ("a = '''\r\nx\\\r\n'y''''", "a=<x\\\n'y'>;"),
        ("a = \"# no comment\"", "a=<# no comment>;"),
    ])
    func `a text has its values`(text: String, values: String) throws {
        #expect(try Array(shown(table(text)).utf8) == Array(values.utf8))
    }

    @Test(arguments: [
        // A key or a value is missing.
        ("[\n", 1, "a key must stand here"), ("[server]\n  [ \t]", 2, "a key must stand here"),
        ("[.a]", 1, "a key must stand here"), ("\u{e4} = 1", 1, "a key must stand here"),
        ("a. = 1", 1, "a key must stand here"),
        ("[a\n]", 1, "bracket ] of the header"), ("a\n= 1", 1, "= must follow"),
        ("a = 1\nb =", 2, "b must be a string in quotes"),
        ("a = 1 b = 2", 1, "must end here"), ("[a] b = 2", 1, "must end here"),
        ("a = [1 2]", 1, "a comma or the closing bracket"),
        ("\na = [1,\n", 2, "the closing bracket ] of a"), ("a = {b = 1,\n}", 1, "a key must stand here"),
        ("a = {b = 1\n}", 1, "brace } of a is missing"), ("a = {b = 1,}", 1, "a key must stand here"),
        // Values of other forms.
        ("a = yes", 1, "a must be a string"), ("a = 01", 1, "a must be"), ("a = 1_", 1, "a must be"),
        ("a = 1.", 1, "a must be"),
        ("a = .5", 1, "a must be"), ("a = +0x1", 1, "a must be"), ("a = 0b2", 1, "a must be"),
        ("a = 1e", 1, "a must be"),
        ("a = 9223372036854775808", 1, "a number of 64 bits"), ("a = \u{661}", 1, "a must be"),
        ("a = 2027-01-31", 1, "dates and times are not supported"),
        ("a = 07:30:00", 1, "dates and times are not supported"),
        ("\n[[a]]", 2, "arrays of tables are not supported"),
        // Strings.
        ("a = \"x\nb = \"", 1, "closing quotes"), ("a = '", 1, "closing quotes"),
        ("\na = \"\"\"\n\"\"", 2, "closing quotes"),
        ("\"\"\"a\"\"\" = 1", 1, "one quote at each end"), (#"a = "\x""#, 1, "an escape must be"),
        ("a = \"\\", 1, "an escape must be"),
        (#"a = "\u12"#, 1, "hexadecimal"), (#"a = "\ud800""#, 1, "hexadecimal"),
        (#"a = "\U00110000""#, 1, "hexadecimal"),
        (#"a = "\u+123""#, 1, "hexadecimal"),
        // Two places that define the same.
        ("a = 1\nb = 2\n\"a\" = 3", 3, "a has a value already"), ("a = 1\n[a]", 2, "is no table"),
        ("a = 1\na.b = 1", 2, "is no table"),
        ("[a]\n[b]\n[a]", 3, "the table a is defined already"), ("a.b = 1\n[a]", 2, "a is defined already"),
        ("a = {}\n[a.b]", 2, "a is defined already"), ("a = {}\na.b = 1", 2, "a is defined already"),
        ("[a.b]\n[a]\nb.c = 1", 3, "b is defined already"), ("[a]\nb.c = 1\n[a.b]", 3, "b is defined already"),
        ("a = {b = 1, b = 2}", 1, "b has a value already"),
        // Characters.
        ("a = 1\n# \0", 2, "a zero byte"), ("a = 1\rb = 2", 1, "control character 13"),
        ("a = 1\r", 1, "control character 13"),
        ("a = \"\u{7f}\"", 1, "control character 127"), ("a = '''\n\u{b}'''", 2, "control character 11"),
        ("a = 1\n\u{feff}b = 2", 2, "a key must stand here"),
    ])
    func `a fault names its line`(text: String, line: Int, part: String) {
        let fault = #expect(throws: TOMLReader.Fault.self) { try table(text) }
        #expect(fault?.line == line && fault?.message.contains(part) == true, "\(text): \(String(describing: fault))")
    }

    @Test func `a line that is not UTF-8 is refused`() {
        for bytes: [UInt8] in [[0xff], [0xc3], [0xc0, 0x80], [0xed, 0xa0, 0x80]] {
            let fault = #expect(throws: TOMLReader.Fault.self) { try TOMLReader.parse(Array("a = 1\n# ".utf8) + bytes) }
            #expect(fault?.line == 2 && fault?.message.contains("UTF-8") == true)
        }
    }

    @Test func `levels are bounded`() throws {
        for count in [32, 33, 100_000] {
            let arrays = String(repeating: "[", count: count - 1) + "1" + String(repeating: "]", count: count - 1)
            let tables = String(repeating: "{a=", count: count - 1) + "1" + String(repeating: "}", count: count - 1)
            let names = Array(repeating: "a", count: count).joined(separator: ".")
            for text in ["a = \(arrays)", "a = \(tables)", "\(names) = 1", "[\(names)]"] {
                if count <= 32 {
                    _ = try table(text)
                } else {
                    let fault = #expect(throws: TOMLReader.Fault.self) { try table(text) }
                    #expect(fault?.message.contains("32") == true)
                }
            }
        }
    }

    @Test func `any short text is read or refused`() {
        let characters = Array("[]{}\"'\\=.,#\n\ra1".utf8)
        var texts: [[UInt8]] = [[]]
        var longest = texts
        for _ in 0..<3 {
            longest = longest.flatMap { text in characters.map { text + [$0] } }
            texts += longest
        }
        var read = 0
        for start in ["", "a=", "a={", "a.b=[", "a=\"\"\"", "[a]\na="] {
            for end in texts {
                let text = Array(start.utf8) + end
                do throws(TOMLReader.Fault) {
                    _ = try TOMLReader.parse(text)
                    read += 1
                } catch {
                    #expect((1...text.count { $0 == UInt8(ascii: "\n") } + 1).contains(error.line))
                }
            }
        }
        #expect(read > 0)
    }
}
