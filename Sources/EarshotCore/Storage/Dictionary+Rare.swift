extension Dictionary {
    /// Removes what is there under a key. Without hashing it if the table is empty: many of ours nearly always are.
    @discardableResult
    mutating func drop(_ key: Key) -> Value? { isEmpty ? nil : removeValue(forKey: key) }
}
