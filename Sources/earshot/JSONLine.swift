/// One JSON object on one line.
struct JSONLine {
    private var text = "{"

    /// A text; left out if there is none.
    mutating func member(_ name: String, _ value: String?) {
        guard let value else { return }
        begin(name)
        JSONLine.append(value, to: &text)
    }

    /// A number; left out if there is none.
    mutating func member(_ name: String, _ value: Int?) {
        guard let value else { return }
        begin(name)
        text += String(value)
    }

    /// The line, with its end.
    consuming func finished() -> [UInt8] { Array((text + "}\n").utf8) }

    private mutating func begin(_ name: String) {
        if text.utf8.count > 1 { text += "," }
        JSONLine.append(name, to: &text)
        text += ":"
    }

    private static func append(_ value: String, to text: inout String) {
        text += "\""
        for scalar in value.unicodeScalars {
            switch scalar {
            case "\"": text += "\\\""
            case "\\": text += "\\\\"
            default:
                // Also what would command a terminal that the line is shown on.
                if scalar.value < 0x20 || (0x7f..<0xa0).contains(scalar.value) || scalar.value == 0x2028
                    || scalar.value == 0x2029
                {
                    let digits = String(scalar.value, radix: 16)
                    text += "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
                } else {
                    text.unicodeScalars.append(scalar)
                }
            }
        }
        text += "\""
    }
}
