/// A URL as it was typed or listed, made fit for the wire.
enum URLText {
    /// Characters beyond ASCII as percent signs, as browsers send them. Nil if it holds spaces or controls, or is too
    /// long to be said.
    static func wire(_ text: String) -> String? {
        var result = ""
        for byte in text.utf8 {
            switch byte {
            case 0x21...0x7e: result.unicodeScalars.append(Unicode.Scalar(byte))
            case 0x80...: result += "%" + String(byte, radix: 16, uppercase: true)
            default: return nil
            }
        }
        return (1...8192).contains(result.utf8.count) ? result : nil
    }
}
