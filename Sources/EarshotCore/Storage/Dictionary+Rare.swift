extension Dictionary {
    /// Removes and returns a value. Does not hash the key if the dictionary is empty, as many of the core nearly always
    /// are.
    @discardableResult
    mutating func drop(_ key: Key) -> Value? { isEmpty ? nil : removeValue(forKey: key) }
}
