//! What a tool returned, as blocks of a message.

use rmcp::model::{CallToolResponse, CallToolResult, ContentBlock, Resource, ResourceContents};
use serde_json::{Map, json};

use super::super::ToolOutput;
use crate::state::Block;

pub(super) fn of(response: CallToolResponse) -> ToolOutput {
    match response {
        CallToolResponse::Complete(result) => complete(result),
        CallToolResponse::InputRequired(_) => ToolOutput::error(
            "the tool wants to ask a person something, which this agent cannot pass on; it was not completed",
        ),
        _ => ToolOutput::error(
            "the tool answers later, by a task, which this agent cannot wait for; it may or may not take effect",
        ),
    }
}

fn complete(result: CallToolResult) -> ToolOutput {
    let mut content: Vec<Block> = result.content.into_iter().map(block).collect();
    // Servers repeat what is structured as text, for those who know only text; who does not is read in full.
    if let Some(structured) = result.structured_content
        && content.iter().all(|block| block.as_text().is_none())
    {
        content.push(Block::text(structured.to_string()));
    }
    ToolOutput { content, is_error: result.is_error.unwrap_or(false) }
}

fn block(content: ContentBlock) -> Block {
    match content {
        ContentBlock::Text(text) => Block::text(text.text),
        ContentBlock::Image(image) => picture(&image.mime_type, &image.data),
        ContentBlock::Audio(audio) => Block::Other(Map::from_iter([
            ("type".to_owned(), json!("audio")),
            (
                "source".to_owned(),
                json!({"type": "base64", "mediaType": audio.mime_type, "data": audio.data}),
            ),
        ])),
        ContentBlock::Resource(embedded) => match embedded.resource {
            ResourceContents::TextResourceContents { uri, text, .. } => {
                Block::text(format!("{uri}:\n{text}"))
            }
            ResourceContents::BlobResourceContents { mime_type: Some(kind), blob, .. }
                if kind.starts_with("image/") =>
            {
                picture(&kind, &blob)
            }
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                let kind = mime_type.unwrap_or_else(|| "application/octet-stream".into());
                Block::text(format!("{uri}: {} bytes of {kind}", blob.len() / 4 * 3))
            }
            _ => Block::text("[a resource of a kind this version does not know]"),
        },
        ContentBlock::ResourceLink(link) => Block::text(linked(&link)),
        _ => Block::text("[content of a kind this version does not know]"),
    }
}

fn picture(media_type: &str, data: &str) -> Block {
    Block::Image {
        source: json!({"type": "base64", "mediaType": media_type, "data": data}),
        extra: Map::new(),
    }
}

fn linked(link: &Resource) -> String {
    let title = link.title.as_ref().unwrap_or(&link.name);
    let kind = link.mime_type.as_ref().map_or_else(String::new, |kind| format!(" ({kind})"));
    let about = link.description.as_ref().map_or_else(String::new, |about| format!(": {about}"));
    format!("[{title}]({}){kind}{about}", link.uri)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn returned(result: Value) -> ToolOutput {
        complete(serde_json::from_value(result).expect("a result"))
    }

    #[test]
    fn every_kind_of_content_becomes_a_block() {
        let output = returned(json!({"isError": true, "content": [
            {"type": "text", "text": "see"},
            {"type": "image", "mimeType": "image/png", "data": "AAAA"},
            {"type": "audio", "mimeType": "audio/wav", "data": "BBBB"},
            {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "inside"}},
            {"type": "resource", "resource": {"uri": "file:///b.bin", "blob": "CCCCCCCC", "mimeType": "x/y"}},
            {"type": "resource_link", "uri": "file:///c", "name": "c", "description": "the third", "mimeType": "text/plain"},
        ]}));
        assert!(output.is_error);
        assert_eq!(
            serde_json::to_value(&output.content).expect("JSON"),
            json!([
                {"type": "text", "text": "see"},
                {"type": "image", "source": {"type": "base64", "mediaType": "image/png", "data": "AAAA"}},
                {"type": "audio", "source": {"type": "base64", "mediaType": "audio/wav", "data": "BBBB"}},
                {"type": "text", "text": "file:///a.txt:\ninside"},
                {"type": "text", "text": "file:///b.bin: 6 bytes of x/y"},
                {"type": "text", "text": "[c](file:///c) (text/plain): the third"},
            ])
        );
    }

    #[test]
    fn structured_content_is_read_where_no_text_repeats_it() {
        let both =
            returned(json!({"content": [{"type": "text", "text": "4"}], "structuredContent": {"sum": 4}}));
        assert_eq!(both.content, [Block::text("4")]);
        let alone = returned(json!({"content": [], "structuredContent": {"sum": 4}}));
        assert_eq!(alone.content, [Block::text("{\"sum\":4}")]);
    }
}
