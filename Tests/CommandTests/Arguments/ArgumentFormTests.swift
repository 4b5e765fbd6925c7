import Testing

@testable import earshot

/// Messages about values that the argument parser refuses without a reason.
@Suite struct ArgumentFormTests {
    @Test(arguments: [
        ("--checksum <digest>", "sha256: and 64 hexadecimal digits"),
        ("--handler <name>", "1 to 200 visible ASCII characters, with parts between slashes, such as gallery/1"),
        ("<handler>", "1 to 200 visible ASCII characters, with parts between slashes, such as gallery/1"),
        ("--id <id>", "1 to 64 visible ASCII characters"), ("-j <n>", "a whole number"),
        ("--interval <seconds>", "a number of seconds"),
    ])
    func `a value refused without a reason gets the wanted form`(argument: String, form: String) {
        let line = "Error: The value 'a <b>' is invalid for '\(argument)'"
        #expect(ValueFormatHint.messageAddingFormat(line + "\nUsage: x") == line + "; give \(form)\nUsage: x")
        #expect(ValueFormatHint.messageAddingFormat(line) == line + "; give \(form)")
    }

    @Test(arguments: [
        "Error: The value 'x' is invalid for '--a <n>': because\nUsage: x", "Error: other '<n>'", "", "\n",
        "Error: The value 'x' is invalid for '--a <unknown>'",
    ])
    func `other messages stay as they are`(message: String) {
        #expect(ValueFormatHint.messageAddingFormat(message) == message)
    }
}
