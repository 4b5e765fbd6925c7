/// Header fields that a message carries after its own fields: lines separated by LF.
public enum FieldBlock {
    /// Whether a message can carry these lines: without control characters and empty lines.
    public static func isSound(_ lines: [UInt8]) -> Bool {
        !HeadReader.hasControls(lines.span) && !HeadReader.hasEmptyLine(lines.span)
    }
}
