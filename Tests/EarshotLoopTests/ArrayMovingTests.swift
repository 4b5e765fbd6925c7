import EarshotLoop
import Testing

/// The reversal of an array by moves.
@Suite struct ArrayMovingTests {
    @Test(arguments: 0...5)
    func `the elements are in reverse order, and a copy keeps its own`(count: Int) {
        let original = (0..<count).map { "element \($0) of more than fifteen bytes" }
        var reversed = original
        reversed.reverseInPlace()
        #expect(reversed == original.reversed())
        #expect(original == (0..<count).map { "element \($0) of more than fifteen bytes" })
    }

    @Test func `popLast returns the elements from the first to the last`() {
        var rest = ["a", "b", "c"]
        rest.reverseInPlace()
        var taken: [String] = []
        while let element = rest.popLast() { taken.append(element) }
        #expect(taken == ["a", "b", "c"])
    }
}
