/// Completed transfer, as returned by `Multi.takeFinished()`.
public struct FinishedTransfer {
    public let transfer: Transfer
    /// Sink that received the bytes.
    public let sink: any TransferSink
    public let result: TransferResult
}
