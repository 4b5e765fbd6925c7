/// Reversal by moves, for loops that consume a long array of actions.
extension Array {
    /// Reverses the order of the elements by moves, so that `popLast()` returns them from the first to the last.
    ///
    /// A loop over an array copies each element, and retains and releases all references in it. `reverse()` does too.
    @inlinable
    public mutating func reverseInPlace() {
        unsafe withUnsafeMutableBufferPointer { elements in unsafe elements.reverse() }
    }
}
