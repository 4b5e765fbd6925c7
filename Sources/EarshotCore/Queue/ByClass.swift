internal import EarshotWire

/// One value for each class, without an allocation.
struct ByClass<Element> {
    private var values: InlineArray<4, Element>

    init(repeating value: Element) { values = InlineArray(repeating: value) }

    subscript(priority: PriorityClass) -> Element {
        _read { yield values[Int(priority.rawValue)] }
        _modify { yield &values[Int(priority.rawValue)] }
    }

    func allSatisfy(_ isMatch: (Element) -> Bool) -> Bool { values.indices.allSatisfy { isMatch(values[$0]) } }
}

extension ByClass: Equatable where Element: Equatable {
    static func == (left: Self, right: Self) -> Bool {
        left.values.indices.allSatisfy { left.values[$0] == right.values[$0] }
    }
}
