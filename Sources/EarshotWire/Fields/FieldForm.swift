/// Form of a field's value: how the value is parsed and written.
protocol FieldForm<Value> {
    associatedtype Value: Hashable

    /// Parses a value.
    ///
    /// - Parameter name: Name of the field, for the error.
    func parse(_ text: HeadText, fieldName name: String) throws(WireError) -> Value
    /// Writes a field with a value.
    func writeField(_ value: Value, name: String, to writer: inout HeadWriter)
    /// Length of a value of variable length, in bytes; 0 for other forms.
    func textBytes(_ value: Value) -> Int
    /// All values in their written form, if the form is an enumeration; empty otherwise.
    var allowedWords: [String] { get }
}

extension FieldForm {
    func textBytes(_ value: Value) -> Int { 0 }
    var allowedWords: [String] { [] }
}

/// Flag: `yes` or `no`.
struct FlagForm: FieldForm {
    func parse(_ text: HeadText, fieldName name: String) throws(WireError) -> Bool {
        try HeadReader.parseFlag(text, named: name)
    }

    func writeField(_ value: Bool, name: String, to writer: inout HeadWriter) {
        writer.writeField(name, value ? "yes" : "no")
    }

    var allowedWords: [String] { ["yes", "no"] }
}

/// Enumeration with one word for each value.
struct EnumerationForm<Value: RawRepresentable<String> & CaseIterable & Hashable>: FieldForm {
    func parse(_ text: HeadText, fieldName name: String) throws(WireError) -> Value {
        guard let value = Value(rawValue: text.string) else { throw invalidWordError(name) }
        return value
    }

    func writeField(_ value: Value, name: String, to writer: inout HeadWriter) {
        writer.writeField(name, value.rawValue)
    }

    var allowedWords: [String] { Value.allCases.map(\.rawValue) }

    private func invalidWordError(_ name: String) -> WireError {
        let words = allowedWords
        return WireError(
            .badMessage, "\(name) must be \(words.dropLast().joined(separator: ", ")) or \(words.last ?? "nothing")")
    }
}

/// Priority class.
struct PriorityClassForm: FieldForm {
    func parse(_ text: HeadText, fieldName name: String) throws(WireError) -> PriorityClass {
        try HeadReader.parsePriorityClass(text)
    }

    func writeField(_ value: PriorityClass, name: String, to writer: inout HeadWriter) {
        writer.writeField(name, value.name)
    }
}

/// Time in seconds, greater than 0, stored in milliseconds.
struct SecondsForm: FieldForm {
    func parse(_ text: HeadText, fieldName name: String) throws(WireError) -> Int {
        try HeadReader.parseMilliseconds(text, named: name)
    }

    func writeField(_ value: Int, name: String, to writer: inout HeadWriter) {
        writer.writeSecondsField(name, milliseconds: value)
    }
}

/// Number in a range.
struct NumberForm: FieldForm {
    private let range: ClosedRange<Int>

    init(_ range: ClosedRange<Int>) {
        self.range = range
    }

    func parse(_ text: HeadText, fieldName name: String) throws(WireError) -> Int {
        try HeadReader.parseInteger(text, in: range, named: name)
    }

    func writeField(_ value: Int, name: String, to writer: inout HeadWriter) { writer.writeField(name, value) }
}

/// HTTP method.
struct MethodForm: FieldForm {
    func parse(_ text: HeadText, fieldName name: String) throws(WireError) -> String {
        guard Ascii.isIdentifier(text.bytes) else { throw WireError(.badMessage, "\(name) must be an HTTP method") }
        return text.string
    }

    func writeField(_ value: String, name: String, to writer: inout HeadWriter) { writer.writeField(name, value) }
    func textBytes(_ value: String) -> Int { value.utf8.count }
}

/// SHA-256 with the prefix `sha-256=` on the wire, stored without it.
struct DigestForm: FieldForm {
    func parse(_ text: HeadText, fieldName name: String) throws(WireError) -> String {
        guard text.bytes.starts(with: "sha-256=".utf8) else {
            throw WireError(.badMessage, "\(name) must have the form sha-256=HEX")
        }
        return try HeadReader.parseSHA256(text.dropFirst(8), named: name)
    }

    func writeField(_ value: String, name: String, to writer: inout HeadWriter) {
        writer.writeField(name, "sha-256=" + value)
    }
    func textBytes(_ value: String) -> Int { value.utf8.count }
}

/// Value that may be absent.
struct OptionalForm<Form: FieldForm>: FieldForm {
    private let form: Form

    init(_ form: Form) {
        self.form = form
    }

    func parse(_ text: HeadText, fieldName name: String) throws(WireError) -> Form.Value? {
        try form.parse(text, fieldName: name)
    }

    func writeField(_ value: Form.Value?, name: String, to writer: inout HeadWriter) {
        if let value { form.writeField(value, name: name, to: &writer) }
    }

    func textBytes(_ value: Form.Value?) -> Int { value.map { form.textBytes($0) } ?? 0 }
    var allowedWords: [String] { form.allowedWords }
}
