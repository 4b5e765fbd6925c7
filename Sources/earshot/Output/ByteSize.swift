/// Number of bytes in a unit with three significant digits: `1.5 MiB`.
enum ByteSize {
    static func text(_ bytes: Double) -> String {
        var value = bytes
        for unit in ["B", "KiB", "MiB", "GiB"] {
            if value < 1000 || unit == "GiB" {
                // 1,000 to 1,023 of the smaller unit.
                if value < 1, unit != "B" { return "0.\(Int(value * 100)) \(unit)" }
                let tenths = Int(value * 10)
                return unit == "B" || value >= 100 ? "\(Int(value)) \(unit)" : "\(tenths / 10).\(tenths % 10) \(unit)"
            }
            value /= 1024
        }
        return ""
    }
}
