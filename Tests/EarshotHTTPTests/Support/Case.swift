import Testing

/// Row of a table test, named after the section of its source.
struct Case<Expected: Sendable>: Sendable, CustomTestStringConvertible {
    let name: String
    let input: String
    let expected: Expected

    init(_ name: String, _ input: String, _ expected: Expected) {
        self.name = name
        self.input = input
        self.expected = expected
    }

    var testDescription: String { "\(name): \(input.debugDescription)" }
}
